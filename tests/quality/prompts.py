"""200 prompts of what cells are asked: labels, ratings, extraction, summaries, over reviews made of phrases.

They are the same on every machine and with every Python: only `random()` is drawn from, whose numbers stay the same.
"""

import random

PRODUCTS = ["vacuum cleaner", "electric kettle", "pair of headphones", "desk lamp", "rain jacket", "coffee grinder",
            "office chair", "phone case", "board game", "garden hose", "travel pillow", "bluetooth speaker"]
SHOPS = ["Brightway", "Nordmart", "Castello", "Hill & Sons", "Papaya Online", "Quick Depot"]
CITIES = ["Leeds", "Porto", "Chicago", "Hamburg", "Nairobi", "Osaka", "Toronto", "Lyon"]
NAMES = ["Maria", "Tom", "Aisha", "Mr. Keller", "Jun", "Mrs. O'Brien", "Pedro", "Hannah"]
MONTHS = ["January", "March", "May", "July", "September", "November"]
GOOD = ["It works exactly as described and I use it every day.", "The build quality is far better than I expected.",
        "Setting it up took less than five minutes.", "My whole family loves it, even the cat.",
        "For this price you will not find anything better.", "It is quiet, light and easy to clean.",
        "Customer service answered within an hour and was very kind."]
BAD = ["After two weeks it stopped working and nobody answers my e-mails.", "The instructions are missing half of the steps.",
       "It arrived with a crack down the side.", "The colour is nothing like the picture.",
       "It smells of burnt plastic whenever it is switched on.", "I had to wait a month and the box was torn.",
       "They refuse to give me my money back."]
NEUTRAL = ["It comes in a plain brown box with a short manual.", "I bought it as a gift and have used it twice so far.",
           "The size is about what the page says.", "There is a newer model, but I have not tried that one.",
           "It does the job, no more and no less.", "My old one lasted six years; we will see about this one."]
FACTS = ["I ordered the {product} from {shop} on {day} {month} for ${price}.99.",
         "{name} from {city} recommended this {product} to me, and {shop} had it for {price} euros.",
         "Order number {order}: one {product}, delivered to {city} on {month} {day}.",
         "We paid {price} dollars for the {product} at the {shop} store in {city}."]

# What is asked, around the review; a chat each.
CHATS = [
    "Classify the review as positive, negative or neutral. Answer with one word.\n\nReview: {review}",
    "Review:\n{review}\n\nWhich department should read this: shipping, quality, support or none? Reply with the department only.",
    "Is the writer of this text happy? Answer yes or no.\n\nText: {review}",
    "Rate the sentiment of this review from 1 (very bad) to 5 (very good). Answer with the number only.\n\n{review}",
    "How urgent is it to answer this customer, from 1 to 10?\n\n\"{review}\"\n\nNumber:",
    "Extract the name of the product from the text. Answer with the product only.\n\nText: {review}",
    "What price does the text mention? If there is none, say none.\n\n{review}",
    "List as JSON the fields \"product\", \"shop\" and \"price\" of this review.\n\n{review}",
    "Summarize the review in one short sentence.\n\nReview: {review}",
    "Write a title of at most five words for this review.\n\n{review}",
    "{review}\n\nTranslate the first sentence into plain English that a child understands.",
    "Tag this review with up to three topics, separated by commas.\n\nReview: {review}\nTopics:",
]
# The same without a chat, as a base model is asked: what is not dressed in the model's template.
TEXTS = [
    "Review: It broke at once.\nSentiment: negative\n\nReview: I love it.\nSentiment: positive\n\nReview: {review}\nSentiment:",
    "{review}\n\nIn one sentence, the review says that",
    "Text: {review}\nProduct:",
]
# Sentences of a review.
LENGTHS = [1, 2, 4, 7, 11, 26]


def prompts(count=200):
    """So many prompts: each a pair of what it is, "chat" or "text", and its words."""
    numbers = random.Random(20261127)

    def pick(items):
        return items[int(numbers.random() * len(items))]

    def review(sentences):
        mood = pick([GOOD, BAD, GOOD + BAD, NEUTRAL + GOOD, NEUTRAL + BAD])
        fact = pick(FACTS).format(
            product=pick(PRODUCTS), shop=pick(SHOPS), city=pick(CITIES), name=pick(NAMES), month=pick(MONTHS),
            day=1 + int(numbers.random() * 28), price=5 + int(numbers.random() * 190),
            order=10000 + int(numbers.random() * 89999))
        said = [fact]
        while len(said) < sentences:
            # A long review may come back to something, but not at once.
            sentence = pick(mood + NEUTRAL)
            if sentence != said[-1]:
                said.append(sentence)
        return " ".join(said)

    kinds = [("chat", template) for template in CHATS] + [("text", template) for template in TEXTS]
    # 15 templates and 6 lengths have 90 pairs; lengths move on by one after each round of 30, so that all of them come.
    return [(kind, template.format(review=review(LENGTHS[(at + at // 30) % len(LENGTHS)])))
            for at in range(count) for kind, template in [kinds[at % len(kinds)]]]
