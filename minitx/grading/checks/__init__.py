"""One module an exercise; each sets ``EXERCISE``. A new file here is a new exercise."""
