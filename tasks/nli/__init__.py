"""Natural language inference: does the premise entail the hypothesis? (Bowman et al. 2015, Williams et al. 2018)"""
