-- What parts the first process's word from a command's output, for whoever takes the container over.
ALTER TABLE execution ADD COLUMN nonce BLOB;
