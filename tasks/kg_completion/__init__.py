"""Knowledge-graph completion: which entity stands at the open end of a triple."""
