"""Names of the demo's departments, pools, images and presets, in the language of the terminal that starts it. They are data, as
in a real installation: once stored they stay the same, whatever language a reader chooses."""

from __future__ import annotations

from portal.infra import env

CHINESE = {
    "Computer Vision": "计算机视觉部",
    "Language": "语言部",
    "Machine Translation": "机器翻译组",
    "Speech": "语音组",
    "Robotics": "机器人部",
    "Computational Biology": "计算生物部",
    "A100 80GB, whole cards": "A100 80GB 整卡",
    "T4, shared memory": "T4 共享显存",
    "A100 80GB, MIG": "A100 80GB MIG",
    "A100 40GB, parts of a card": "A100 40GB 部分卡",
    "Training (plain Python, demo programs)": "训练（纯 Python 演示程序）",
    "JupyterLab": "JupyterLab",
    "Quick look": "快速体验",
    "A job of a minute on a slice of an A100": "在 A100 的一个切片上运行一分钟的作业",
    "Train on one A100": "单卡 A100 训练",
    "Resumes from its checkpoint after a recall": "被召回后从检查点继续",
    "Train on four A100": "四卡 A100 训练",
    "All on one node, all at once": "同一节点，同时启动",
    "Fine-tune on 6 GiB of a T4": "用 T4 的 6 GiB 显存微调",
    "Shares the card with others": "与其他任务共享一张卡",
    "Two ranks of two A100": "两个 rank，各两张 A100",
    "Each rank learns from its own examples; they average over the network": "每个 rank 用各自的样本训练，并通过网络取平均",
    "Serve a model on 2 GiB of a T4": "用 T4 的 2 GiB 显存提供模型服务",
    "Stays up behind the portal until you stop it": "通过平台访问，一直运行到您停止",
    "Notebook on 4 GiB of a T4": "用 T4 的 4 GiB 显存运行 Notebook",
    "JupyterLab in the browser": "浏览器中的 JupyterLab",
}


OTHER_LANGUAGE = {  # language of the names → how to get the other one, in that other language
    "en": "中文名称：LANG=zh_CN.UTF-8 make demo-reset",
    "zh": "English names: LANG=C.UTF-8 make demo-reset",
}


def of_environment() -> str:
    """Returns "zh" or "en": the language of the terminal."""
    return "zh" if env.locale().lower().startswith("zh") else "en"


def named(text: str, language: str) -> str:
    """`text` in "en" or "zh"; texts without a translation, such as names of products, stay as they are."""
    return CHINESE.get(text, text) if language == "zh" else text
