-- table result_by_code: Results per code and unit, counted as in result_by_patient.
-- inputs: result_by_patient
-- key: code_system, code, unit
-- column code_system VARCHAR cell: System of the code.
-- column code VARCHAR cell: The code.
-- column code_display VARCHAR text: What it means; of several words the first in alphabetical order.
-- column unit VARCHAR cell: Unit of the values.
-- column results BIGINT count: Number of results.
-- column patients BIGINT count: Number of different patients among them.
-- column lowest DOUBLE internal: The lowest value.
-- column p50_value DOUBLE value of valued: The median; bounds such as < 5 are left out.
-- column highest DOUBLE internal: The highest value.
-- column judged BIGINT part of results: Results of which an interpretation or a range says whether they are abnormal.
-- column abnormal BIGINT part of judged: Of these, the abnormal ones.
-- column valued BIGINT internal: Of the patients, those with a value that is no bound.
SELECT
    code_system,
    code,
    min(code_display) AS code_display,
    unit,
    count(*) AS results,
    count(DISTINCT patient_id) AS patients,
    min(value) AS lowest,
    quantile_cont(value, 0.5) FILTER (WHERE comparator IS NULL) AS p50_value,
    max(value) AS highest,
    count(is_abnormal) AS judged,
    count(*) FILTER (WHERE is_abnormal) AS abnormal,
    count(DISTINCT patient_id) FILTER (WHERE comparator IS NULL AND value IS NOT NULL) AS valued
FROM result_by_patient
GROUP BY code_system, code, unit
ORDER BY code_system, code, unit
