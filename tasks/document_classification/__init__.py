"""Classes of documents, read on three levels: words, sentences, documents."""
