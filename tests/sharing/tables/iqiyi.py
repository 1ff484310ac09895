from tests.sharing.table import Found, Live, Table
from workloads.sharing import Held, PodPatch, Settings

TABLE = Table(
    system="iqiyi",
    found=(
        Found(
            product="Tesla-V100-SXM2-16GB",
            node="gpushare-v100x4",
            settings=Settings(pins={"gpushare=true": "iqiyi"}),
            unit="MiB",
            units_per_card=15360,
            cards=4,
            because="pinned by an operator",
        ),
    ),
    asked=(({"product": "", "units": 2048}, PodPatch(limits={"aliyun.com/gpu-mem": "2"})),),
    refused=(
        ({"product": "", "units": 1500}, ("units_per_pod", "not_a_multiple")),
        ({"product": "", "units": 1024, "env": {"LD_PRELOAD": "mine.so"}}, ("env", "reserved_variable")),
    ),
    read=(({"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "0"}}}, (Held("0"),)),),
    live=(
        Live(
            node="gpushare-v100x4",
            options={"pins": {"gpushare=true": "iqiyi"}},
            body={"units_per_pod": 2048},
            limits={"aliyun.com/gpu-mem": "2"},
            plays={"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "1"}},
            cards=("1",),
            bad={"units_per_pod": 1024, "env": {"LD_PRELOAD": "mine.so"}},
            blamed="env",
            said="LD_PRELOAD is reserved: it could change which cards",
        ),
    ),
)
