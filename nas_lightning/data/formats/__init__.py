"""Files of others: pickles, lists of images, images."""
