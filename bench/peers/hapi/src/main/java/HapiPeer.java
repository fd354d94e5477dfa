import ca.uhn.fhir.batch2.jobs.config.Batch2JobsConfig;
import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.jpa.api.config.JpaStorageSettings;
import ca.uhn.fhir.jpa.api.config.ThreadPoolFactoryConfig;
import ca.uhn.fhir.jpa.batch2.JpaBatch2Config;
import ca.uhn.fhir.jpa.config.HapiJpaConfig;
import ca.uhn.fhir.jpa.config.r4.JpaR4Config;
import ca.uhn.fhir.jpa.config.util.HapiEntityManagerFactoryUtil;
import ca.uhn.fhir.jpa.model.config.PartitionSettings;
import ca.uhn.fhir.jpa.model.config.SubscriptionSettings;
import ca.uhn.fhir.jpa.model.dialect.HapiFhirPostgresDialect;
import ca.uhn.fhir.jpa.provider.JpaSystemProvider;
import ca.uhn.fhir.jpa.search.DatabaseBackedPagingProvider;
import ca.uhn.fhir.jpa.subscription.channel.config.SubscriptionChannelConfig;
import ca.uhn.fhir.rest.server.RestfulServer;
import ca.uhn.fhir.rest.server.provider.ResourceProviderFactory;
import jakarta.persistence.EntityManagerFactory;
import java.util.Map;
import javax.sql.DataSource;
import org.apache.commons.dbcp2.BasicDataSource;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.orm.jpa.JpaTransactionManager;
import org.springframework.orm.jpa.LocalContainerEntityManagerFactoryBean;

/**
 * HAPI FHIR JPA on loopback over the PostgreSQL database that HAPI_URL, HAPI_USER and HAPI_PASSWORD name,
 * at HAPI_PORT or a free port. Prints its address when it answers, and serves until it is ended.
 */
public class HapiPeer {

    public static void main(String[] arguments) throws Exception {
        var spring = new AnnotationConfigApplicationContext(Storage.class);
        var server = new Server();
        var connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        connector.setPort(Integer.parseInt(System.getenv().getOrDefault("HAPI_PORT", "0")));
        server.addConnector(connector);
        var handler = new ServletContextHandler("/");
        handler.addServlet(new ServletHolder(restful(spring)), "/*");
        server.setHandler(handler);
        server.start();
        System.out.println("http://127.0.0.1:" + connector.getLocalPort());
        server.join();
    }

    private static RestfulServer restful(AnnotationConfigApplicationContext spring) {
        var restful = new RestfulServer(spring.getBean(FhirContext.class));
        restful.registerProviders(spring.getBean(ResourceProviderFactory.class).createProviders());
        restful.registerProvider(spring.getBean(JpaSystemProvider.class));
        restful.setPagingProvider(spring.getBean(DatabaseBackedPagingProvider.class));
        return restful;
    }

    /** The library's own configuration, with what it leaves to a server: settings, database, transactions. */
    @Configuration
    @Import({
        JpaR4Config.class,
        HapiJpaConfig.class,
        JpaBatch2Config.class,
        Batch2JobsConfig.class,
        SubscriptionChannelConfig.class,
        ThreadPoolFactoryConfig.class
    })
    public static class Storage {

        @Bean
        public JpaStorageSettings storageSettings() {
            var settings = new JpaStorageSettings();
            settings.setMatchUrlCacheEnabled(Boolean.parseBoolean(System.getenv("HAPI_CONDITIONS_CACHED")));
            return settings;
        }

        @Bean
        public PartitionSettings partitionSettings() {
            return new PartitionSettings();
        }

        @Bean
        public SubscriptionSettings subscriptionSettings() {
            return new SubscriptionSettings();
        }

        @Bean(destroyMethod = "close")
        public BasicDataSource dataSource() {
            var source = new BasicDataSource();
            source.setUrl(System.getenv("HAPI_URL"));
            source.setUsername(System.getenv("HAPI_USER"));
            source.setPassword(System.getenv("HAPI_PASSWORD"));
            source.setMaxTotal(32);
            source.setMaxIdle(32);
            return source;
        }

        @Bean
        public LocalContainerEntityManagerFactoryBean entityManagerFactory(
                DataSource database,
                ConfigurableListableBeanFactory beans,
                FhirContext context,
                JpaStorageSettings settings) {
            var factory = HapiEntityManagerFactoryUtil.newEntityManagerFactory(beans, context, settings);
            factory.setPersistenceUnitName("hapi");
            factory.setDataSource(database);
            factory.setJpaPropertyMap(Map.of(
                    "hibernate.dialect", HapiFhirPostgresDialect.class.getName(),
                    "hibernate.hbm2ddl.auto", "update",
                    "hibernate.jdbc.batch_size", "30",
                    "hibernate.order_inserts", "true",
                    "hibernate.order_updates", "true",
                    "hibernate.search.enabled", "false"));
            return factory;
        }

        @Bean
        public JpaTransactionManager transactionManager(EntityManagerFactory factory) {
            return new JpaTransactionManager(factory);
        }
    }
}
