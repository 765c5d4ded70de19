// Sample sheets. The reviews are real ones; the tickets were written for this project.

import reviews from "@examples/reviews.csv?raw";
import { readCsv } from "../core/csv";

/** A sheet to try. */
export interface Sample {
  name: string;
  rows: string[][];
  widths: number[];
}

/** Real reviews with what their raters said: `examples/README.md` names the source. */
const REVIEWS = readCsv(reviews).slice(1).map(([, review = "", raters = ""]) => ({ review, raters }));

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
      widths: [430, 110, 90, 110, 200],
      rows: [
        ["Review", "Class", "Rating", "Raters said", "Negative by the model"],
        ...REVIEWS.map(({ review, raters }, i) => [
          review,
          i === 0 ? `=AI.CLASSIFY(A2:A${REVIEWS.length + 1}, "positive, negative")` : "",
          i === 0 ? `=AI.RATE(A2:A${REVIEWS.length + 1})` : "",
          raters,
          i === 0 ? `=COUNTIF(B2:B${REVIEWS.length + 1}, "negative")/${REVIEWS.length}` : "",
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
