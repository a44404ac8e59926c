"""Pure: mapping text to model, model and schema to plans, plans and row trees to items."""
