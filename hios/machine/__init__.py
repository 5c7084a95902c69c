"""The machine at hand: its cores and memory, its terminal; statistics of what is measured on it."""
