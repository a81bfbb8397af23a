"""What training anything needs: optimisers, gradients, an epoch's means, and the training of one network."""
