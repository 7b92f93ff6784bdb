"""A curriculum behind other people's trainers: TRL, verl. Nothing here is imported unless used."""
