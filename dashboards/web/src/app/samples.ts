// Sample sheets. Their texts were written for this project and are under its licence.

/** A sheet to try. */
export interface Sample {
  name: string;
  rows: string[][];
  widths: number[];
}

const REVIEWS = [
  "The battery lasts two full days and charges in an hour.", "The screen cracked in the first week.",
  "Exactly what I needed for the kitchen.", "It stopped working after three uses.",
  "My daughter loves it and plays with it every day.", "The instructions are missing half of the steps.",
  "Shipping was fast and the box was intact.", "Support never answered my two messages.",
  "A little loud, but it does its job very well.", "The colour is nothing like the picture.",
  "I bought a second one for my parents.", "It smells of plastic even after a month.",
  "Light, sturdy and easy to clean.", "The zip broke on the first trip.",
  "Best headphones I have had at this price.", "The app asks for a login and then crashes.",
  "Warm, soft and true to size.", "The seams came apart in the wash.",
  "Sets up in five minutes, no tools needed.", "I waited six weeks and got the wrong size.",
  "The taste is rich and not too sweet.", "Half of the cups arrived broken.",
  "A quiet fan, finally I can sleep.", "The handle gets too hot to touch.",
  "The lamp gives a warm and even light.", "The remote only works from one metre away.",
  "Great value, I would buy it again.", "It leaks from the lid when it is tilted.",
  "The pages are thick and take ink well.", "The wheels squeak and one fell off.",
  "The picture is sharp and the menus are clear.", "The refund took two months.",
  "It fits in my bag and weighs nothing.", "The buttons stick when it rains.",
  "Friendly service and a free replacement.", "The heater trips the fuse every evening.",
  "My back pain is gone since I have this chair.", "The glue smell never went away.",
  "The dog chews it all day and it holds.", "It was used before, there was hair in it.",
  "Clear sound and a long cable.", "The timer is off by ten minutes.",
  "The knife stays sharp for months.", "The cover ripped when I opened the box.",
  "Simple, solid, does what it says.", "The battery cover does not close.",
  "A beautiful present, well wrapped.", "The printer jams on every third page.",
  "It heats the room in minutes.", "The paint peels off in flakes.",
];

const TICKETS = [
  "I was charged twice for my order last month.", "The parcel shows delivered, but nothing came.",
  "How do I change the address of my account?", "The app closes when I open the camera.",
  "Please cancel my subscription at the end of the year.", "My invoice has the wrong company name.",
  "The tracking page has said 'in transit' for ten days.", "I cannot log in since the update.",
  "Can I get a refund for the unused weeks?", "The delivery came a day early, thank you!",
  "Password reset mails never arrive.", "The courier left the box in the rain.",
];

/** Every sample, in the order of the menu. */
export function samples(): Sample[] {
  return [
    {
      name: "Reviews",
      widths: [430, 110, 90, 200],
      rows: [
        ["Review", "Class", "Rating", "Share of complaints"],
        ...REVIEWS.map((review, i) => [
          review,
          i === 0 ? `=AI.CLASSIFY(A2:A${REVIEWS.length + 1}, "praise, complaint")` : "",
          i === 0 ? `=AI.RATE(A2:A${REVIEWS.length + 1})` : "",
          i === 0 ? `=COUNTIF(B2:B${REVIEWS.length + 1}, "complaint")/${REVIEWS.length}` : "",
        ]),
      ],
    },
    {
      name: "Support tickets",
      widths: [400, 130, 110, 120],
      rows: [
        ["Ticket", "Topic", "Urgency", "Topics"],
        ...TICKETS.map((ticket, i) => [
          ticket,
          `=AI.CLASSIFY(A${i + 2}, $D$2:$D$5)`,
          `=AI.RATE(A${i + 2}, "how urgent it is")`,
          ["billing", "delivery", "account", "bug"][i] ?? "",
        ]),
      ],
    },
  ];
}
