"""Methods and models that no paper has, to compare with those of the papers.

- `fourier_recentering`: plain models of images that are recentred by fractions of a pixel
  (`fractional_shifts`); `fourier_upernet`: UperNet on such a Swin;
- `polyphase_selection`: other choices of a Swin's grids than the shift paper's;
- `canonicalization`: a plain ViT of images that are rolled to a canonical position.
"""
