"""Invented names and free texts, with the quotes, line breaks and scripts that real exports hold."""

FAMILY = """
Abbott Åkesson Alvarez Andersson Banerjee Bäcker Castillo Chen Čapek Cohen D'Angelo De_la_Cruz Dubois Ekström
Eriksen Fernández Fischer Fitzgerald Gallagher García Goldberg Górski Haddad Hansen Ibrahim Ivanova Jackson
Jensen Johansson Kaya Khan Kimura Kowalski Lefèvre Li Łukasik Martínez McCarthy Mensah Müller Nakamura Nguyễn
Novák N'Diaye O'Brien O'Connor Okafor Olsen Öztürk Park Patel Pérez Petrov Quispe Ramírez Rossi Şahin Sánchez
Schmidt Singh Smith Smith-Jones Sørensen Suzuki Takahashi Thompson Tran Ueda Vasquez Virtanen Wagner Walker
Weiß Williams Wójcik Yamamoto Yılmaz Zhang Zięba
""".split()

GIVEN = """
Ada Aïcha Alejandro Amélie Ana Anders Aylin Beatriz Björn Carlos Chloé Daniel Dmitri Elena Emeka Emma Fatima
François George Grace Hana Hélène Ian Ingrid Isabel Jack James Jörg José Julia Kaito Katarzyna Khadija Liam
Linh Lucía Maeve Marek María Maya Mehmet Michael Mónica Naomi Ngozi Noah Olga Omar Oskar Patricia Paul Priya
Quinn Rafael Ravi Renée Robert Rosa Ruth Sarah Seán Sofia Søren Susan Tariq Théo Tomás Ursula Victor Wei
William Ximena Yui Zoë Zuzana
""".split()

WHOLE_NAMES = (
    ("Иванова", "Дарья", "female"),
    ("Шевченко", "Тарас", "male"),
    ("王", "小明", "male"),
    ("佐藤", "結衣", "female"),
    ("김", "다은", "female"),
    ("Παπαδόπουλος", "Αλέξης", "male"),
    ("الخطيب", "ليلى", "female"),
    ("כהן", "נועה", "female"),
    ("शर्मा", "प्रिया", "female"),
    ("จันทร์ดี", "สมชาย", "male"),
    ('O\'Neil "Skip"', "Robert", "male"),
    ("D’Souza", 'Mary "Molly" Anne', "female"),
    ("van der Berg, Jr.", "Pieter", "male"),
    ("Nuñez y Ibáñez", "María José", "female"),
)

COMMENTS = (
    "Patient asked to be called after 5 pm.",
    "Left a voicemail; no answer yet.",
    'She said "it comes and goes", mostly at night.',
    "Called twice.\nSecond time the line was busy.",
    "Zurückgerufen, bitte nächste Woche noch einmal versuchen.",
    "Paciente prefiere comunicación en español.",
    "已与患者通话，下周复诊。",
    "Пациентка просит перенести приём.",
    "Spoke to O'Brien at the front desk; see fax of 3/14, p. 2",
    "Faxed; confirmation no. 00417",
    "عاودوا الاتصال بعد الظهر",
    'Waiting for prior auth -- insurer says "5 to 7 business days"',
)

FREE_TEXT = (
    "None",
    "Ibuprofen 200 mg, now and then",
    "Lisinopril 10 mg daily; metformin 500 mg twice a day",
    'My knee "clicks" when I climb stairs',
    "Started after the move.\nWorse in the evenings.\nBetter on weekends.",
    "Dolor de cabeza desde hace dos semanas",
    "Schlafe schlecht, seit der Schicht gewechselt wurde",
    "最近睡眠不好，容易疲劳。",
    "Беспокоит боль в спине",
    "夜になると咳が出ます",
    "Can't sleep, can't focus, it's exhausting",
    "Penicillin (rash), shellfish",
    "See attached list, items 1, 2 & 4",
)

FEEDBACK = (
    "Everyone was kind.",
    "Waited 40 minutes, then 5 minutes with the doctor.",
    'The sign says "Suite 210" but it is 201',
    "Très bon accueil, merci !",
    "Parking is hard to find,\nespecially in the morning.",
    "Gracias por todo",
    "待ち時間が長かったです。",
)

TASKS = (
    "Call {name} about lab results",
    "Refill request: {name}, lisinopril 10 mg",
    "Schedule follow-up for {name} in 6 weeks",
    "Send records of {name} to the cardiologist",
    "Prior authorization for MRI, {name}",
    "{name}: insurance card is out of date",
    "Return call to {name} re: billing question",
    'Letter for {name}: "fit for work" note',
    "Check in on {name} after discharge",
    "Interpreter needed for the next visit of {name}",
    "{name} missed the appointment, reschedule",
    "Collect signed consent form,\nthen scan it into the chart of {name}",
)

LABELS = (
    "billing",
    "refill",
    "urgent",
    "labs",
    "call back",
    "records",
    "prior auth",
    "Spanish",
    "Größe L",
    "follow-up",
    "紹介状",
)
