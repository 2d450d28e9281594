"""PREFIX: is the second sentence a noisy prefix of the first? (Ganea, Bécigneul and Hofmann, NeurIPS 2018)"""
