"""Who carries, who decides, who remembers. `run.py` is where a run begins; the README says how to read on."""
