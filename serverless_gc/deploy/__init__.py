"""What goes to AWS, built and looked after from the driver's side. Nothing is imported until it is used."""
