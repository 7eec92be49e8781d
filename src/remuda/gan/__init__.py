"""One GAN: its networks, how they learn, and a round of the game they play."""
