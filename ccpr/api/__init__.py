"""What `import ccpr` gives."""
