"""The files below ``configs/`` as typed and checked objects; nothing here imports torch."""
