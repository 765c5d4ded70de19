"""Texts with a topic or an intent, and the classify, filter and tag tasks asked about them."""

import random

import words
from prompts import TOPIC_BY_LABELS, by_labels, casing, cell, yes_no
from sentiment import Example
from words import split

# Names of a topic (the first is the usual one), then words of which its sentences are made.
TOPICS = {names.split(",")[0]: (split(names), split(nouns), split(verbs)) for names, nouns, verbs in [line.split("|") for line in """
sports,sport,athletics|team, match, goal, coach, league, player, final, stadium, championship, tournament, striker, referee, marathon, race, basketball, tennis, football, soccer, baseball, hockey, medal, season, playoffs, goalkeeper, runner, cyclist, Olympic games, cup, score, quarterback|won, lost, scored, trained for, qualified for, watched, defended
food,cooking,cuisine|recipe, soup, bread, pasta, garlic, chicken, salad, cheese, chocolate cake, oven, rice, sauce, kitchen, dessert, breakfast, chef, butter, onions, pizza, noodles, spices, vegetables, dinner, tomato, curry, cookies|cooked, baked, tasted, served, ate, fried, seasoned
travel,tourism,trips|flight, hotel, beach, passport, airport, suitcase, tour, museum, island, luggage, vacation, train ride, hostel, itinerary, visa, cruise, sightseeing, old town, guidebook, border, mountain trail, holiday, souvenir|visited, booked, explored, flew to, toured, packed for
technology,tech,computers|software, laptop, app, server, smartphone, database, algorithm, chip, browser, update, password, cloud, programmer, code, robot, network, internet, website, artificial intelligence, processor, operating system, startup, developer, gadget|installed, programmed, updated, debugged, launched, designed
finance,money,economy|stock, bank, loan, interest rate, investor, mortgage, inflation, market, fund, bond, tax, dividend, shares, currency, profit, savings account, budget, earnings, central bank, quarterly revenue, debt, portfolio|invested in, sold, borrowed, analysed, traded, raised
health,medicine,medical|doctor, hospital, patient, vaccine, flu, medicine, headache, diet, nurse, surgery, blood pressure, symptoms, clinic, therapy, exercise, infection, fever, allergy, heart disease, sleep, diabetes, pills, vitamin|treated, diagnosed, cured, prescribed, examined, recovered from
politics,government,elections|election, president, senator, parliament, vote, law, minister, campaign, party, policy, government, mayor, bill, treaty, debate, congress, ballot, coalition, governor, referendum, opposition|voted for, passed, debated, elected, opposed, signed
science,research|experiment, planet, physicist, telescope, molecule, DNA, theory, laboratory, atom, species, galaxy, chemistry, fossil, biology, microscope, black hole, gravity, study, scientist, particle, evolution|discovered, measured, observed, published, studied
music,songs|album, song, guitar, concert, band, singer, piano, orchestra, melody, drums, choir, jazz, violin, record, festival, lyrics, rapper, composer, symphony|played, sang, recorded, composed, performed, rehearsed
movies,film,cinema|movie, film, actor, director, screenplay, cinema, trailer, Oscar, actress, scene, sequel, box office, thriller, comedy, documentary, premiere, studio, animation|watched, filmed, directed, starred in, reviewed
education,school,learning|teacher, student, school, exam, homework, university, classroom, lesson, degree, professor, scholarship, textbook, course, essay, grade, college, kindergarten, curriculum, tutor|taught, studied for, passed, graded, enrolled in
weather,climate|rain, storm, snow, sunshine, wind, temperature, forecast, hurricane, clouds, heat wave, thunder, fog, drought, frost, humidity, flood, lightning|predicted, soaked, froze, expected
nature,animals,wildlife|dog, cat, forest, bird, lion, river, tree, whale, elephant, flower, wolf, garden, bear, fish, horse, bees, meadow, eagle, puppy, kitten, oak|fed, watched, protected, planted, rescued
fashion,clothing,style|dress, shirt, shoes, jacket, designer, jeans, handbag, scarf, runway, skirt, fabric, hat, boots, sweater, perfume, earrings, collection|wore, designed, sewed, tried on, ironed
cars,automotive,vehicles|car, engine, tires, truck, brakes, dealer, motorcycle, steering wheel, gearbox, highway, electric car, fuel, driver, garage, SUV, horsepower, headlights|drove, parked, repaired, overtook
real estate,housing,property|apartment, house, rent, landlord, tenant, bedroom, lease, realtor, basement, neighborhood, roof, condo, square feet, balcony, down payment|rented, bought, renovated, inspected
""".strip().splitlines()]}

# Support intents: names, then whole sentences.
INTENTS = {names.split(",")[0]: (split(names), [s.strip() for s in sentences.split(";")]) for names, sentences in [line.split("|") for line in """
billing,payment,invoice|I was charged twice this month; my invoice shows the wrong amount; why did you bill my card again; the payment was declined; I need a copy of the invoice for March; there is an unknown charge of {price} on my card; my bill went up without notice; I see a fee that I do not understand; can I pay by bank transfer; my credit card was charged after the free trial
shipping,delivery|my package has not arrived; where is my order; the parcel is a week late; the tracking number does not work; the courier left the box in the rain; can you ship to {place}; my delivery was sent to the old address; the box arrived damaged; when will my order be delivered; it still says out for delivery
refund,returns,money back|I want my money back; how do I return the {product}; please refund my order; I sent the {product} back and got no refund yet; can I exchange the {product} for another size; the refund of {price} has not reached my account; what is the return policy; I would like to return this item
technical,technical support,bug|the app crashes when I open it; I get an error message on the login page; the {product} will not turn on; the website does not load; the update broke the search; the screen stays black; the sync stopped working; the page shows error 500; my {product} keeps disconnecting; the button does nothing when I click it
account,login,account access|I forgot my password; I cannot log in; please change my email address; how do I delete my account; my account was locked; I want to change my user name; the reset link never came; someone else used my account; how can I update my profile; two factor codes do not arrive
cancellation,cancel|please cancel my subscription; I want to stop the service; how can I cancel my plan; I no longer need the membership; cancel my order before it ships; end my contract at the end of the month; please do not renew my subscription
sales,pricing,quote|how much does the premium plan cost; do you offer discounts for schools; I would like a quote for 20 seats; what is the price of the {product}; is there a free trial; can I get a demo; do you have the {product} in blue; which plan is right for a small team
""".strip().splitlines()]}

# Pairs of other closed labels: names of both sides, then sentences of each.
PAIRS = [(names.split(","), [[s.strip() for s in side.split(";")] for side in sides]) for names, *sides in [line.split("|") for line in """
urgent,not urgent|our whole office is offline, please call now; the server is down and customers cannot pay; I need this fixed today; emergency, the basement is flooding; please answer immediately; the deadline is in one hour and nothing works; my flight leaves tonight and the ticket is wrong; this must be solved right now|no rush, whenever you have time; just wondering if you plan a dark mode; I would like to know more about the plan some day; a small typo on the about page; thanks for the newsletter; next month I may need another seat; it can wait until next week; take your time with this one
spam,not spam|you have won a free cruise, click here; make {price} a day from home; cheap pills with no prescription; your account is suspended, verify at this link now; hot singles in {place} want to meet you; claim your prize before midnight; double your bitcoin in one day; congratulations, you are our lucky winner|are we still meeting on {day}; please find the report attached; mom says dinner is at seven; can you review my draft by {day}; the meeting moved to room 4; thanks for your help yesterday; happy birthday, {name}; your table for two is booked for {day}
question,statement|where is the office; how do I reset it; when does the shop open on {day}; who wrote this report; can I bring my dog; what does it cost; is there parking near {place}; does it work with a {product}|the office is in {place}; I reset it on {day}; the shop opens at nine; {name} wrote this report; dogs are allowed; it costs {price}; there is parking behind the house; the {product} is on the table
""".strip().splitlines()]]

GENERAL = ["The {n} was the main subject of the evening.", "{Name} {v} the {n} on {day}.", "Everyone talked about the {n} and the {n2}.",
           "We {v} the {n} in {place}.", "A new {n} was announced in {place}.", "The {n} and the {n2} were better than last year.",
           "Have you seen the {n}?", "I spent all {day} with the {n}.", "This article explains how the {n} affects the {n2}.",
           "{Name} needs a {n}.", "The {n} in {place} is famous.", "Our {n} costs {price}.", "They {v} a {n} and a {n2}.", "news about the {n}",
           "The {n2} depends on the {n}.", "{Name} wrote about {n}, {n2} and {n3}.", "{n}, {n2}, {n3}", "I have a question about my {n}."]


def dress(text: str, rng: random.Random) -> str:
    """Fills names, places, prices into a sentence."""
    for slot, value in (("{name}", rng.choice(words.FIRST)), ("{Name}", rng.choice(words.FIRST + ["She", "He", "My brother", "The company"])),
                        ("{place}", rng.choice(words.PLACES)), ("{day}", rng.choice(words.DAYS)), ("{product}", rng.choice(words.PRODUCTS)),
                        ("{price}", f"${rng.randint(2, 900)}")):
        text = text.replace(slot, value)
    return text


def topic_text(topic: str, rng: random.Random) -> str:
    """One or two sentences that only this topic's words tell apart."""
    _, nouns, verbs = TOPICS[topic]
    out = []
    for _ in range(rng.choice([1, 1, 2])):
        n, n2, n3 = rng.sample(nouns, 3)
        made = rng.choice(GENERAL).replace("{n}", n).replace("{n2}", n2).replace("{n3}", n3).replace("{v}", rng.choice(verbs))
        out.append(made[0].upper() + made[1:])
    return dress(" ".join(out), rng)


def intent_text(intent: str, rng: random.Random) -> str:
    """A support message of this intent."""
    text = rng.choice(INTENTS[intent][1])
    before = rng.choice(["", "", "Hello, ", "Hi, ", "Dear team, ", "Hi there, my name is {name} and "])
    after = rng.choice(["", "", " Please help.", " Thanks.", " My order is #%d." % rng.randint(1000, 99999), " Thank you, {name}"])
    text = before + text + ("?" if text.split()[0] in {"where", "how", "can", "why", "when", "what", "is", "do", "which"} else ".") + after
    return dress(text[0].upper() + text[1:], rng)


def choice(names: dict[str, tuple], right: str, rng: random.Random) -> tuple[list[str], str]:
    """Some labels of a group, the right one among them, in one casing."""
    others = rng.sample([name for name in names if name != right], rng.choice([1, 2, 2, 3, 3, 4, 5]))
    labels = [rng.choice(names[name][0]) if rng.random() < 0.4 else name for name in [right, *others]]
    cased = casing(labels, rng)
    answer = cased[0]
    cased = list(cased)
    rng.shuffle(cased)
    return cased, answer


def topic(rng: random.Random) -> Example:
    """Topic or intent by labels, or a yes-no filter on them, or tags."""
    group, make, task = (TOPICS, topic_text, "topic") if rng.random() < 0.6 else (INTENTS, intent_text, "intent")
    right = rng.choice(list(group))
    text = make(right, rng)
    kind = rng.random()
    if kind < 0.65:
        labels, answer = choice(group, right, rng)
        return Example(f"{task} classify", by_labels(text, labels, TOPIC_BY_LABELS, rng), answer)
    if kind < 0.88:
        truth = rng.random() < 0.5
        named = right if truth else rng.choice([name for name in group if name != right])
        name = rng.choice(group[named][0])
        question = rng.choice(["Is this about {x}?", "Is the text about {x}?", "Does the message concern {x}?", "Is the topic {x}?",
                               "Does this mention {x}?", "Is it related to {x}?"]).replace("{x}", name)
        prompt, answer = yes_no(question, truth, text, rng)
        return Example(f"{task} yes-no", prompt, answer)
    second = rng.choice([name for name in group if name != right])
    both = rng.random() < 0.5
    text = text + " " + make(second, rng) if both else text
    others = rng.sample([name for name in group if name not in (right, second)], rng.randint(1, 3))
    labels = [right, second, *others]
    rng.shuffle(labels)
    answer = ", ".join(label for label in labels if label == right or both and label == second)
    return Example("tag", cell("tag", text=text, tags=", ".join(labels)), answer)


def pair(rng: random.Random) -> Example:
    """Urgent or not, spam or not, question or statement."""
    names, sides = rng.choice(PAIRS)
    side = rng.randrange(2)
    text = dress(rng.choice(sides[side]), rng)
    text = text[0].upper() + text[1:] + ("?" if names[0] == "question" and side == 0 else rng.choice([".", "", "!"]))
    if rng.random() < 0.35:
        question = f"Is this {'a ' if names[0] == 'question' else ''}{names[0]}?"
        prompt, answer = yes_no(question, side == 0, text, rng)
        return Example("pair yes-no", prompt, answer)
    cased = casing(names, rng)
    answer = cased[side]
    cased = list(cased)
    rng.shuffle(cased)
    return Example("pair classify", by_labels(text, cased, TOPIC_BY_LABELS, rng), answer)
