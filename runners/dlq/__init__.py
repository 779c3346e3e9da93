"""The refused rows: carried again, thrown away, summed up."""
