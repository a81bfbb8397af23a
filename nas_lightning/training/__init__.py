"""What training anything needs: optimisers, gradients, an epoch's means, and the training of one network."""

from nas_lightning.rooms import names_of

__getattr__ = names_of(__name__)
