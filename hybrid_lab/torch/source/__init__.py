"""PyTorch modules as readable source: `hybrid-lab convert model-symbol.json model.py` writes one."""
