"""Methods and models that no paper has, to compare with those of the papers.

- `fourier_recentering`: a position that follows an image by fractions of a pixel
  (`fractional_shifts`), which plain models follow; `harmonic_upernet`: UperNet on such a Swin;
- `polyphase_selection`: other choices of a Swin's grids than the shift paper's;
- `canonicalization`: a plain ViT that is shown images at a canonical place.
"""
