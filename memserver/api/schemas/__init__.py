"""The API's resources as pydantic models, one file for each."""
