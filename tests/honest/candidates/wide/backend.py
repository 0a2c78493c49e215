BACKEND = "eager"
