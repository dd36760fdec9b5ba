"""Every storage that fsspec can open: S3, Google Cloud Storage, Azure and the rest."""
