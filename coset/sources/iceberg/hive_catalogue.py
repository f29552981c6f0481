"""A metastore of Hive that is waited for only so long, of Hive 4 too, which PyIceberg 0.12 does not know."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import GetTableRequest
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportBase

from coset.sources.iceberg.catalogue_changes import TIMEOUT


class HiveWithin(HiveCatalog):
    """A metastore whose requests end in time."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        usual = HiveCatalog._create_hive_client(properties)
        user = ":".join(usual._ugi or ()) or None
        return _Within(usual._uri, user, usual._kerberos_auth, usual._kerberos_service_name)


class _Within(_HiveClient):
    def _init_thrift_transport(self) -> TTransportBase:
        where = urlsplit(self._uri)
        socket = TSocket(where.hostname, where.port)
        socket.setTimeout(1000 * TIMEOUT[1])
        if self._kerberos_auth:
            return TSaslClientTransport(socket, host=where.hostname, service=self._kerberos_service_name)
        return TBufferedTransport(socket)

    def _client(self) -> Client:
        client = _Client(TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


class _Client(Client):  # type: ignore[misc]
    def get_table(self, dbname: str, tbl_name: str) -> HiveTable:
        # Hive 4 has no get_table; all since 2.3 have this.
        return cast(HiveTable, self.get_table_req(GetTableRequest(dbName=dbname, tblName=tbl_name)).table)
