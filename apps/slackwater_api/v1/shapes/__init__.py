"""The shapes of requests and answers, by subject; ``serializers`` gathers them."""
