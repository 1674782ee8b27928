"""What the examples train: each task brings a LightningModule and a LightningDataModule."""
