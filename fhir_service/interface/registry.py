"""The resources of the interface: one line each."""

from fhir_service.interface.resources.diagnostic_report import DIAGNOSTIC_REPORT
from fhir_service.interface.resources.observation import OBSERVATION
from fhir_service.interface.resources.payment_notice import PAYMENT_NOTICE
from fhir_service.interface.resources.questionnaire import QUESTIONNAIRE
from fhir_service.interface.resources.questionnaire_response import QUESTIONNAIRE_RESPONSE
from fhir_service.interface.resources.task import TASK
from fhir_service.interface.vocabulary import Resource

RESOURCES: dict[str, Resource] = {
    resource.name: resource
    for resource in (TASK, PAYMENT_NOTICE, QUESTIONNAIRE, QUESTIONNAIRE_RESPONSE, DIAGNOSTIC_REPORT, OBSERVATION)
}
