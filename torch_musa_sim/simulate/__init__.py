"""Card and cluster specifications, cost model, planning."""
