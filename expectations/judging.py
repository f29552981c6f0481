"""The base of Coset's expectations: they judge a whole table and describe offenders in sentences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import islice
from traceback import format_exc
from typing import Any, ClassVar

import pandas as pd
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.result_format import ResultFormat
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, render_suite_parameter_string
from great_expectations.expectations.expectation_configuration import parse_result_format
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import RendererConfiguration, RendererValueType
from great_expectations.validator.exception_info import ExceptionInfo


class TableRecords(TableMetricProvider):
    """The records of a pandas batch: Coset's expectations judge small tables."""

    metric_name = "table.coset_records"

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        **_: Any,
    ) -> pd.DataFrame:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        return frame


class TableExpectation(BatchExpectation, ABC):
    """An expectation on a whole table.

    Data Docs show `sentence`, in which `$name` stands for an argument. The table must have the columns that are
    `needed`.
    """

    sentence: ClassVar[str]
    needed: ClassVar[tuple[str, ...]]
    metric_dependencies: ClassVar[tuple[str, ...]] = (TableRecords.metric_name,)

    def answer(self, title: str, frame: pd.DataFrame) -> ExpectationValidationResult:
        """The answer on the table of this title, as Great Expectations' Validator gives it.

        The Validator works out which metrics expectations need, which takes far longer than to judge a small table.
        """
        configuration = self.configuration
        configuration.kwargs = {"batch_id": title, **configuration.kwargs}
        try:
            judged = self._validate({TableRecords.metric_name: frame}, {"result_format": ResultFormat.SUMMARY.value})
        except Exception as error:
            judged = {"success": False, "exception_info": ExceptionInfo(format_exc(), str(error))}
        return ExpectationValidationResult(**judged, expectation_config=configuration)

    def needs(self) -> list[str]:
        """The columns that the table must have."""
        return [*self.needed]

    @abstractmethod
    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        """A sentence on what was seen, how many were judged, how many were bad, and a sentence for each bad one."""

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        frame = metrics[TableRecords.metric_name]
        if missing := [name for name in self.needs() if name not in frame.columns]:
            there_are = ", ".join(str(name) for name in frame.columns)
            says = f"there is no column {', '.join(missing)}; there are {there_are}"
            return {"success": False, "result": {"observed_value": says}}
        observed, judged, bad, sentences = self._judge(frame)
        # Great Expectations raises if more is bad than was judged: of one table several keys may be.
        count = max(judged, bad)
        shown = parse_result_format(self._get_result_format(runtime_configuration))["partial_unexpected_count"]
        return {
            "success": bad == 0,
            "result": {
                "observed_value": observed,
                "element_count": count,
                "unexpected_count": bad,
                "unexpected_percent": 100 * bad / count if count else 0.0,
                "partial_unexpected_list": list(islice(sentences, shown)),
            },
        }

    @classmethod
    def _arguments(cls, configured: dict[str, Any]) -> dict[str, str]:
        # A configuration holds only non-default values.
        values = {name: cls.__fields__[name].default for name in cls.args_keys} | configured
        return {name: _text(values[name]) for name in cls.args_keys}

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: RendererConfiguration[Any]) -> RendererConfiguration[Any]:
        for name, value in cls._arguments(renderer_configuration.kwargs).items():
            renderer_configuration.add_param(name=name, param_type=RendererValueType.STRING, value=value)
        renderer_configuration.template_str = cls.sentence
        return renderer_configuration

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    @render_suite_parameter_string
    def _prescriptive_renderer(
        cls,
        configuration: Any = None,
        result: Any = None,
        runtime_configuration: dict[str, Any] | None = None,
        **_: Any,
    ) -> list[RenderedStringTemplateContent]:
        configured = configuration or (result.expectation_config if result else None)
        return [
            RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={
                    "template": cls.sentence,
                    "params": cls._arguments(configured.kwargs if configured else {}),
                    "styling": (runtime_configuration or {}).get("styling", {}),
                },
            )
        ]


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
