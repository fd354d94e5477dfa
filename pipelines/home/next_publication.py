"""What a command says that changes what the published tables tell, and publishes none itself."""

SHOWN_NEXT = "the tables and the report page show it after the next import, or chartferry reports"
