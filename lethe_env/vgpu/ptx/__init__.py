"""PTX as data: parsing, strict decoding, control flow."""
