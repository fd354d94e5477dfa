import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.rest.api.SortSpec;
import ca.uhn.fhir.rest.api.SummaryEnum;
import ca.uhn.fhir.rest.client.api.IGenericClient;
import ca.uhn.fhir.rest.client.interceptor.BearerTokenAuthInterceptor;
import ca.uhn.fhir.rest.gclient.StringClientParam;
import ca.uhn.fhir.rest.server.exceptions.PreconditionFailedException;
import ca.uhn.fhir.rest.server.exceptions.ResourceNotFoundException;
import ca.uhn.fhir.rest.server.exceptions.UnprocessableEntityException;
import java.util.UUID;
import org.hl7.fhir.r4.model.Bundle;
import org.hl7.fhir.r4.model.OperationOutcome;
import org.hl7.fhir.r4.model.Reference;
import org.hl7.fhir.r4.model.StringType;
import org.hl7.fhir.r4.model.Task;

public class Example {
    private static final StringClientParam LABEL = new StringClientParam("label");

    public static void main(String[] arguments) {
        IGenericClient client = FhirContext.forR4().newRestfulGenericClient(System.getenv("FHIR_BASE"));
        client.registerInterceptor(new BearerTokenAuthInterceptor(System.getenv("FHIR_TOKEN")));
        String label = UUID.randomUUID().toString();

        Task made = (Task) client.create().resource(task(label, "number 0")).execute().getResource();
        System.out.println("created version " + made.getMeta().getVersionId());
        for (int number = 1; number < 5; number++) {
            client.create().resource(task(label, "number " + number)).execute();
        }

        Task read = client.read().resource(Task.class).withId(made.getIdElement().getIdPart()).execute();
        read.setStatus(Task.TaskStatus.COMPLETED);
        Task updated = (Task) client.update().resource(read).execute().getResource();
        System.out.println("updated to version " + updated.getMeta().getVersionId());

        Bundle page = client.search().forResource(Task.class).where(LABEL.matches().value(label)).count(2)
            .sort(new SortSpec("_lastUpdated")).include(Task.INCLUDE_PATIENT).returnBundle(Bundle.class).execute();
        int pages = 1;
        while (page.getLink(Bundle.LINK_NEXT) != null) {
            page = client.loadPage().next(page).execute();
            pages++;
        }
        System.out.println(page.getTotal() + " tasks on " + pages + " pages");
        Bundle counted = client.search().forResource(Task.class).where(LABEL.matches().value(label))
            .summaryMode(SummaryEnum.COUNT).returnBundle(Bundle.class).execute();
        System.out.println(counted.getTotal() + " counted");

        try {
            client.read().resource(Task.class).withId("nothing").execute();
        } catch (ResourceNotFoundException refused) {
            System.out.println("404 " + said(refused.getOperationOutcome()));
        }
        try {
            client.update().resource(read).execute();
        } catch (PreconditionFailedException refused) {
            System.out.println("412 " + said(refused.getOperationOutcome()));
        }
        try {
            client.create().resource(task(label, "a draft").setStatus(Task.TaskStatus.DRAFT)).execute();
        } catch (UnprocessableEntityException refused) {
            System.out.println("422 " + said(refused.getOperationOutcome()));
        }
    }

    private static Task task(String label, String description) {
        Task task = new Task().setStatus(Task.TaskStatus.REQUESTED).setIntent(Task.TaskIntent.UNKNOWN);
        task.setDescription(description).setRequester(new Reference("Practitioner/dr-01"));
        task.setFor(new Reference("Patient/p001"));
        task.addInput().setValue(new StringType(label)).getType().setText("label");
        return task;
    }

    private static String said(Object outcome) {
        return ((OperationOutcome) outcome).getIssueFirstRep().getDetails().getText();
    }
}
