"""Tasks: data, models and training loops. They know PyTorch Lightning and ``hyperbolic``, and never Hydra."""
