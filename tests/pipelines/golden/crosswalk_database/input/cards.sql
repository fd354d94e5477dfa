CREATE TABLE cards (number INTEGER, holder TEXT, issued TEXT);
INSERT INTO cards VALUES (17, 'p1', '2023-01-01'), (18, ' Patient/p2 ', '2023-01-02'), (19, NULL, '2023-01-03'), (20, 'p4', '2019-01-01');
CREATE TABLE invoices (claim TEXT, invoice TEXT);
INSERT INTO invoices VALUES ('c1', 'R-0001'), ('c2', 'R-0002'), ('c2', 'R-0002');
