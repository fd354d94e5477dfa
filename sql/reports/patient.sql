-- table patient: One row per patient of the target of this publication, with nothing but sex and years of birth. Empty
--   unless the setting publish_patients is set.
-- inputs: told_patient, this_publication
-- key: patient_id
-- column patient_id VARCHAR patient: Id of the patient at the target.
-- column sex VARCHAR quasi: Administrative gender: male, female, other or unknown.
-- column birth_years VARCHAR quasi: Decade of birth, such as 1970-1979. Those of the decade ninety years ago, or of an
--   earlier one, are together: before 1940, in 2026.
WITH dated AS (
    SELECT
        told_patient.*,
        told_patient.birth_year // 10 * 10 AS decade,
        (year(this_publication.published_at) - 90) // 10 * 10 AS oldest
    FROM told_patient
    CROSS JOIN this_publication
)

SELECT
    patient_id,
    CASE WHEN gender IN ('male', 'female', 'other', 'unknown') THEN gender END AS sex,
    CASE
        WHEN birth_year IS NULL THEN NULL
        WHEN decade <= oldest THEN 'before ' || (oldest + 10)
        ELSE decade || '-' || (decade + 9)
    END AS birth_years
FROM dated
ORDER BY patient_id
