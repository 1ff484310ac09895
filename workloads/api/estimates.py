"""`estimates/`: how accurate the estimates of starts were."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.base import ApiView
from workloads.estimates.keep import COMPARED, outcomes
from workloads.estimates.outcomes import calibration_of


class PoolCalibrationOut(serializers.Serializer[Any]):
    """A pool's first estimates, of workloads that have started or are still waiting after the estimated range."""

    pool = serializers.CharField(help_text="Its name.")
    count = serializers.IntegerField()
    hours = serializers.IntegerField(
        help_text="In how many different hours they were made. Estimates of one hour err together: fewer than 20 say little."
    )
    held = serializers.IntegerField(help_text="Started in the 80 % range.")
    earlier = serializers.IntegerField()
    later = serializers.IntegerField()
    error_part = serializers.FloatField(
        help_text="Median of the distance between middle and start, as a part of the wait."
    )
    error_seconds = serializers.FloatField(help_text="The same in seconds.")


class CalibrationOut(serializers.Serializer[Any]):
    days = serializers.IntegerField(help_text="Of how many days.")
    pools = PoolCalibrationOut(many=True)


class Estimates(ApiView):
    @extend_schema(operation_id="estimates_read", responses=CalibrationOut)
    def get(self, request: Request) -> Response:
        """For operators."""
        self.actor.require_operator()
        held = {pool: calibration_of(each) for pool, each in outcomes(now=timezone.now()).items()}
        pools = [{"pool": pool, **asdict(row)} for pool, row in held.items()]
        return Response(CalibrationOut({"days": COMPARED.days, "pools": pools}).data)
