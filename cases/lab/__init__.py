"""What all cases share. Everything here but panel, figures and lesson needs torch alone."""
