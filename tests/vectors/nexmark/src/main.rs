//! Eight thousand events of the Nexmark suite, one a line, in the order in which they are sent.

use nexmark::{config::NexmarkConfig, EventGenerator};

fn main() {
    let config = NexmarkConfig {
        // Wednesday, 7 January 2026, 23:59:50 UTC: the events are of two days.
        base_time: 1_767_830_390_000,
        // An event every 10 ms, so that windows of 10 seconds are many.
        first_rate: 100,
        next_rate: 100,
        // Fifty at a time in another order than their times'.
        out_of_order_group_size: 50,
        // The states that the queries ask for are written in capitals.
        us_states: ["AZ", "CA", "ID", "OR", "WA", "WY"].map(String::from).to_vec(),
        // Less of the text that no query looks at.
        avg_person_byte_size: 120,
        avg_auction_byte_size: 180,
        avg_bid_byte_size: 44,
        ..Default::default()
    };
    for event in EventGenerator::new(config).take(8_000) {
        println!("{}", serde_json::to_string(&event).unwrap());
    }
}
