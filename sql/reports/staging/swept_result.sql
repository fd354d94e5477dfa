-- Makes swept_result from the results that reports name (relation read_results: report_id, which is the id of the
-- Observation, body, changes, first_seen_at, changed_at, gone_at): a row for each Observation, and for each of its
-- components. An element of another shape than FHIR's becomes empty, as
-- does a number that no double holds. The macro free_text gives NULL unless the home
-- publishes free text.
WITH about AS (
    SELECT
        report_id AS observation_id,
        changes,
        body,
        json_transform(body, '{
            "status": "VARCHAR",
            "category": [{"coding": [{"code": "VARCHAR"}]}],
            "subject": {"reference": "VARCHAR"},
            "encounter": {"reference": "VARCHAR"},
            "effectiveDateTime": "VARCHAR",
            "effectiveInstant": "VARCHAR",
            "effectivePeriod": {"start": "VARCHAR"},
            "issued": "VARCHAR",
            "component": ["JSON"]
        }') AS result
    FROM read_results
    WHERE gone_at IS NULL
),

part AS (
    SELECT
        * EXCLUDE (body),
        0 AS position,
        body AS measured
    FROM about
    UNION ALL
    SELECT
        * EXCLUDE (body),
        generate_subscripts(result.component, 1) AS position,
        unnest(result.component) AS measured
    FROM about
),

shaped AS (
    SELECT
        * EXCLUDE (measured),
        json_transform(measured, '{
            "code": {"coding": [{"system": "VARCHAR", "code": "VARCHAR", "display": "VARCHAR"}], "text": "VARCHAR"},
            "dataAbsentReason": {"coding": [{"code": "VARCHAR"}]},
            "valueQuantity": {"value": "DOUBLE", "comparator": "VARCHAR", "unit": "VARCHAR", "code": "VARCHAR"},
            "valueInteger": "BIGINT",
            "valueBoolean": "BOOLEAN",
            "valueString": "VARCHAR",
            "valueCodeableConcept": {"coding": [{"system": "VARCHAR", "code": "VARCHAR", "display": "VARCHAR"}]},
            "interpretation": [{"coding": [{"code": "VARCHAR", "display": "VARCHAR"}]}],
            "referenceRange": [{
                "low": {"value": "DOUBLE", "unit": "VARCHAR", "code": "VARCHAR"},
                "high": {"value": "DOUBLE", "unit": "VARCHAR", "code": "VARCHAR"},
                "type": {"coding": [{"code": "VARCHAR"}]},
                "appliesTo": ["JSON"],
                "age": "JSON"
            }]
        }') AS said
    FROM part
),

judged AS (
    SELECT
        *,
        list_transform(flatten(list_transform(said.interpretation, LAMBDA each: each.coding)), LAMBDA each: each.code)
            AS verdicts,
        list_filter(
            coalesce(said.referencerange, []),
            LAMBDA each: coalesce(each.type.coding[1].code, 'normal') = 'normal'
            AND len(coalesce(each.appliesto, [])) = 0
            AND each.age IS NULL
            AND is_of_unit(each.low, said.valuequantity)
            AND is_of_unit(each.high, said.valuequantity)
        ) AS ranges
    FROM shaped
)

SELECT
    observation_id,
    position,
    changes,
    result.status,
    result.category[1].coding[1].code AS category_code,
    reference_id(result.subject.reference, 'Patient') AS patient_id,
    reference_id(result.encounter.reference, 'Encounter') AS encounter_id,
    coalesce(said.code.coding, []) AS codes,
    said.code.text AS code_text,
    moment(coalesce(result.effectivedatetime, result.effectiveinstant, result.effectiveperiod.start)) AS effective_at,
    moment(result.issued) AS issued_at,
    coalesce(finite(said.valuequantity.value), said.valueinteger) AS value,
    said.valuequantity.comparator,
    coalesce(said.valuequantity.unit, said.valuequantity.code) AS unit,
    said.valuecodeableconcept.coding[1].system AS value_system,
    coalesce(said.valuecodeableconcept.coding[1].code, said.valueboolean::VARCHAR) AS value_code,
    said.valuecodeableconcept.coding[1].display AS value_display,
    free_text(said.valuestring) AS value_text,
    said.dataabsentreason.coding[1].code AS absent_reason,
    verdicts[1] AS interpretation,
    said.interpretation[1].coding[1].display AS interpretation_display,
    CASE WHEN len(ranges) = 1 THEN finite(ranges[1].low.value) END AS range_low,
    CASE WHEN len(ranges) = 1 THEN finite(ranges[1].high.value) END AS range_high,
    CASE
        WHEN list_has_any(verdicts, ['A', 'AA', 'H', 'HH', 'HU', 'L', 'LL', 'LU']) THEN TRUE
        WHEN list_contains(verdicts, 'N') THEN FALSE
        WHEN said.valuequantity.comparator IS NULL AND value IS NOT NULL AND coalesce(range_low, range_high) IS NOT NULL
            THEN value < coalesce(range_low, value) OR value > coalesce(range_high, value)
    END AS is_abnormal
FROM judged
