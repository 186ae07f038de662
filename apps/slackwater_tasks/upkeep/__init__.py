"""Small bounded jobs that mend what a crash leaves behind, and delete what its retention has passed."""
