//! What is refused, where the refusal points, and what it says.

use super::super::{Cron, EXPRESSION_BYTES_MAX, Field, ParseError, zone};

fn refusal(expr: &str) -> ParseError {
    match Cron::parse(expr) {
        Ok(_) => panic!("{expr:?} was accepted"),
        Err(refused) => refused,
    }
}

#[test]
fn mistakes_are_refused_where_they_are() {
    use Field::{DayOfMonth, DayOfWeek, Hour, Minute, Month, Second};
    let cases: &[(&str, usize, Field)] = &[
        (", * * * *", 0, Minute),
        ("1,,2 * * * *", 2, Minute),
        ("1, * * * *", 2, Minute),
        ("60 * * * *", 0, Minute),
        ("-1 * * * *", 0, Minute),
        ("1- * * * *", 2, Minute),
        ("1--5 * * * *", 2, Minute),
        ("0x10 * * * *", 0, Minute),
        ("+5 * * * *", 0, Minute),
        ("1_0 * * * *", 0, Minute),
        ("? * * * *", 0, Minute),
        ("L * * * *", 0, Minute),
        ("*/0 * * * *", 2, Minute),
        ("*/61 * * * *", 2, Minute),
        ("*/ * * * *", 2, Minute),
        ("/5 * * * *", 0, Minute),
        ("*/-5 * * * *", 2, Minute),
        ("*/99999999999 * * * *", 2, Minute),
        ("*/5/5 * * * *", 2, Minute),
        ("** * * * *", 0, Minute),
        ("*-5 * * * *", 0, Minute),
        ("1-2-3 * * * *", 2, Minute),
        ("50-10 * * * *", 0, Minute),
        ("* 24 * * *", 2, Hour),
        ("* 22-2 * * *", 2, Hour),
        ("* MON * * *", 2, Hour),
        ("* */25 * * *", 4, Hour),
        ("* * 0 * *", 4, DayOfMonth),
        ("* * 32 * *", 4, DayOfMonth),
        ("* * LL * *", 4, DayOfMonth),
        ("* * 29W * *", 4, DayOfMonth),
        ("* * 0W * *", 4, DayOfMonth),
        ("* * W * *", 4, DayOfMonth),
        ("* * 1-5W * *", 4, DayOfMonth),
        ("* * L-0 * *", 6, DayOfMonth),
        ("* * L-31 * *", 6, DayOfMonth),
        ("* * L/2 * *", 4, DayOfMonth),
        ("* * ?/2 * *", 4, DayOfMonth),
        ("* * */32 * *", 6, DayOfMonth),
        ("* * * 13 *", 6, Month),
        ("* * * JAN-FOO *", 10, Month),
        ("* * * JANUARY *", 6, Month),
        ("* * * DEC-FEB *", 6, Month),
        ("* * * ? *", 6, Month),
        ("* * * * 8", 8, DayOfWeek),
        ("* * * * 1#0", 10, DayOfWeek),
        ("* * * * 1#6", 10, DayOfWeek),
        ("* * * * #1", 8, DayOfWeek),
        ("* * * * 1#", 10, DayOfWeek),
        ("* * * * 1#1#1", 10, DayOfWeek),
        ("* * * * L", 8, DayOfWeek),
        ("* * * * 5L-6", 8, DayOfWeek),
        ("* * * * 5L#1", 8, DayOfWeek),
        ("* * * * 5L/3", 8, DayOfWeek),
        ("* * * * 1/2", 8, DayOfWeek),
        ("* * * * MON/2", 8, DayOfWeek),
        ("* * * * FRI-SUN", 8, DayOfWeek),
        ("* * * * 1-5#1", 8, DayOfWeek),
        ("  * * * * 8", 10, DayOfWeek),
        ("1,99 * * * * *", 2, Second),
    ];
    for (expr, position, field) in cases {
        let refused = refusal(expr);
        assert_eq!((refused.position, refused.field), (*position, Some(*field)), "{expr}: {refused}");
        assert!(!refused.hint.is_empty());
    }
}

#[test]
fn expressions_that_are_wrong_as_a_whole_are_refused() {
    for expr in ["", "   ", "*", "* * * *", "* * * * * * *", "1 2 * * * extra", "0 0 1 1 * 1970 2 3"] {
        refusal(expr);
    }
    for expr in ["@unknown", "@reboot", "@every 5m", "@", "@daily *"] {
        assert!(refusal(expr).hint.contains("@daily"), "{expr}");
    }
    assert_eq!(refusal("* * * *\0 *").position, 7);
    assert_eq!(refusal("* * \u{b9} * *").position, 4);
    assert_eq!(refusal("*\u{a0}* * * *").position, 1);
    assert_eq!(refusal("* * *\n* *").position, 5);
}

#[test]
fn dates_that_never_come_are_refused() {
    for expr in
        ["0 0 30 2 *", "0 0 31 2 *", "0 0 31 4,6 *", "0 0 30-31 FEB ?", "0 0 31 2,4,6,9,11 *", "0 0 L-29 2 *"]
    {
        let refused = refusal(expr);
        assert_eq!((refused.position, refused.field), (4, Some(Field::DayOfMonth)), "{expr}");
    }
    for expr in ["0 0 29 2 *", "0 0 31 4,6,8 *", "0 0 30 2 1", "0 0 * 2 1#5", "0 0 28W 2 *", "0 0 L-28 2 *"] {
        assert!(Cron::parse(expr).is_ok(), "{expr}");
    }
}

#[test]
fn long_expressions_are_refused_unread() {
    let every_value =
        |min: u32, max: u32| (min..=max).map(|value| value.to_string()).collect::<Vec<_>>().join(",");
    let fields =
        [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)].map(|(min, max)| every_value(min, max));
    assert!(Cron::parse(&fields.join(" ")).is_ok(), "every value of every field fits");
    let refused = refusal(&format!("{} * * * *", "0,".repeat(50_000)));
    assert_eq!(refused.position, EXPRESSION_BYTES_MAX);
    assert!(refused.to_string().len() < 200);
}

#[test]
fn refusals_say_what_to_write_instead() {
    let said = |expr| refusal(expr).to_string();
    assert_eq!(
        said("61 * * * *"),
        "minute field: '61' is not between 0 and 59 (at byte 0); write numbers from 0 to 59, such as 0,30 or */5"
    );
    assert_eq!(
        said("* 22-2 * * *"),
        "hour field: the range '22-2' runs backwards (at byte 2); write two ranges: 22-23,0-2"
    );
    assert_eq!(
        said("* * * * FRI-SUN"),
        "day-of-week field: the range 'FRI-SUN' runs backwards (at byte 8); Sunday begins the week here: write FRI-6,0"
    );
    assert_eq!(
        said("0 0 30 2 *"),
        "day-of-month field: '30' never comes in month '2' (at byte 4); write a day these months have, or L for the last"
    );
    assert_eq!(
        said("* * 29W * *"),
        "day-of-month field: '29' is not between 1 and 28 (at byte 4); write 1W to 28W, the days every month has, or LW for a \
         month's last weekday"
    );
    assert_eq!(
        said("* * L-31 * *"),
        "day-of-month field: '31' is not between 1 and 30 (at byte 6); write L-1 to L-30, that many days before a month's \
         last, or L for the last"
    );
    assert_eq!(
        said("* * * * 1#6"),
        "day-of-week field: '6' is not between 1 and 5 (at byte 10); write #1 to #5, such as FRI#2 for a month's second, or 5L \
         for its last"
    );
    assert_eq!(
        said("* * * *"),
        "there are 4 fields (at byte 7); write five (minute, hour, day of month, month, day of week), or six with seconds first"
    );
}

#[test]
fn hints_can_be_followed() {
    for expr in [
        "* 22-23,0-2 * * *",
        "* * * * FRI-6,0",
        "* * * * MON-6/2",
        "@daily",
        "0 0 L 2 *",
        "* * 15W * FRI#2,5L",
        "* * 1W,28W,LW * *",
        "* * L-1,L-30,L * *",
        "* * * * FRI#1,FRI#5",
    ] {
        assert!(Cron::parse(expr).is_ok(), "{expr}");
    }
}

#[test]
fn zones_are_known_by_their_exact_names() {
    for name in ["UTC", "Etc/UTC", "America/New_York", "EST5EDT", "Etc/GMT+3", "Australia/Lord_Howe", "GMT"] {
        assert_eq!(zone(name).unwrap().iana_name(), Some(name));
    }
    let nearest = |name: &str| zone(name).unwrap_err().nearest;
    assert_eq!(nearest("america/new_york").as_deref(), Some("America/New_York"));
    assert_eq!(nearest("Europe/Berln").as_deref(), Some("Europe/Berlin"));
    assert_eq!(nearest("Zurich").as_deref(), Some("Europe/Zurich"));
    assert_eq!(nearest("utc").as_deref(), Some("UTC"));
    assert_eq!(nearest("EST5EDT4").as_deref(), Some("EST5EDT"));
    for name in
        ["", " UTC", "UTC ", "GMT+3", "+02:00", "Etc/Unknown", "../etc/localtime", "Local", "Mars/Phobos"]
    {
        assert!(zone(name).is_err(), "{name:?}");
    }
    assert_eq!(nearest(""), None);
    assert!(zone(&"x".repeat(100_000)).unwrap_err().to_string().len() < 200);
}
