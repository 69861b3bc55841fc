"""The JSON documents of the REST side, as upstream prints them: shapes; nothing is counted here."""
