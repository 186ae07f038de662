"""What the admins of all apps share: service calls told as messages, POST buttons, lists over millions of rows."""
