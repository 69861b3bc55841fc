"""A cluster's record holds what upstream's holds, with its defaults."""

from __future__ import annotations

from geminga_protocol.records.cluster.clusters import ClusterData, cluster_path

RECORDED = (
    b'{"serviceUrl":"http://127.0.0.1:28080","brokerServiceUrl":"pulsar://127.0.0.1:26650",'
    b'"brokerClientTlsEnabled":false,"tlsAllowInsecureConnection":false,'
    b'"brokerClientTlsEnabledWithKeyStore":false,"brokerClientTlsTrustStoreType":"JKS",'
    b'"brokerClientTlsKeyStoreType":"JKS","brokerClientSslFactoryPlugin":'
    b'"org.apache.pulsar.common.util.DefaultPulsarSslFactory"}'
)


def test_a_new_cluster_is_the_recorded_one() -> None:
    cluster = ClusterData(
        service_url="http://127.0.0.1:28080", broker_service_url="pulsar://127.0.0.1:26650"
    )
    assert cluster.encode() == RECORDED
    assert ClusterData.decode(RECORDED) == cluster


def test_a_cluster_stands_under_its_name() -> None:
    assert cluster_path("standalone") == "/admin/clusters/standalone"
