"""The index of runs, batches and refused rows, beside the state."""
